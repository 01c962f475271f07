// (to come) share
