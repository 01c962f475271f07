// (to come) pair
