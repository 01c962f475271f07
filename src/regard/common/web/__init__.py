"""Web: what every page of regard shares. html_page: templates, data in a page, and its policy."""
