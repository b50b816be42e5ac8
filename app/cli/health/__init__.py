"""The checks of `tidemill doctor`: each looks at one thing and says how it is, and what to do if it is not well."""
