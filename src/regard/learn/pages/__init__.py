"""Pages: the course in a browser, as files (`regard learn --site`), slides, or served with the learner's folder.

chapter_html writes a chapter, from its parts and from what was recorded of its code; web holds script and style;
serving answers a browser.
"""
