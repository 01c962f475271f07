"""Running a kernel on several threads.

launch   a call: its tasks, working memory and lifetimes     threads   number and choice of threads
pool     worker threads that wait in machine code
"""
