"""Serving: the course in the browser, with the learner's folder (`regard learn --serve`).

server               what has which address, for the browser of this machine only
requests             what a page may request: answers are judged and kept, hints and solutions noted, files begun
programs · worker    the code of chapters, run in processes of their own
checks               the learner's files, checked at each save; pages that wait receive the result
"""
