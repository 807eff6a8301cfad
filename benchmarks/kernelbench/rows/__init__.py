"""Rows of judged tasks: what one holds, the file that keeps them, and the pages made from them."""
