// (to come) findings
