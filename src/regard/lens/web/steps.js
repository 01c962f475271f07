// (to come) steps
