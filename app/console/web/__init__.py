"""What all pages for people go through, whichever they are: who it is, what they may, forms, templates, headers.

Promises:
- Nothing is read for a page before it is known who looks, but the page to sign in and the static files.
- What changes something is a POST that carries the proof of the session, by an operator; it is audited by the name of
  the token that was signed in with.
- Everything is escaped where it is put into a page. No page has a script or a style in it, and none loads any from
  elsewhere: the content policy allows neither.
- Pages work without JavaScript. With it they stay up to date by themselves, and questions are asked in a dialog.
"""
