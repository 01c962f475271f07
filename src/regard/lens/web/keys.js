// (to come) keys
