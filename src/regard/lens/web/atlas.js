// (to come) atlas
