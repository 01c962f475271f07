// (to come) legend
