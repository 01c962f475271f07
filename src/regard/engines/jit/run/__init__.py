"""Running a kernel on several threads.

launch   a call: its tasks, its working memory, what must stay alive     threads   who works with whom
pool     workers that wait in machine code
"""
