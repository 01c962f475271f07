// (to come) compare
