"""Pictures of the pages, computed here and written by templates as SVG: sizes, places and words, no colours. Pure."""
