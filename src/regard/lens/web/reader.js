// (to come) reader
