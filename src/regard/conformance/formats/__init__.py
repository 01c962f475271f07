"""A report for other programs and pages: JUnit, Markdown, and a badge."""
