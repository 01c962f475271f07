"""Pages: the course in a browser, as files (`regard learn --site`), slides, or served with the learner's folder.

chapter_html         a chapter, from its parts and from what was recorded of its code: Markdown, code, formulas
site, slides         the files that they are written to; web holds script and style
server               what has which address, for the browser of this machine only (`regard learn --serve`), and what
                     a page may request: answers are judged and kept, hints and solutions noted, files begun
programs             the code of chapters, run in processes of their own
checks               the learner's files, checked at each save; pages that wait receive the result
"""
