// (to come) map
