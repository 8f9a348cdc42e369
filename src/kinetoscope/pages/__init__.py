"""pages: self-contained web pages, and the code that puts data into them."""
