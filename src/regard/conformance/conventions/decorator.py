def adapter(**k):
    return lambda f: f
