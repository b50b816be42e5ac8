"""The pages of the console, a module for each thing that is looked at.

How to add one:

- **Route.** In a module of this folder, `PAGES = (Page("jobs", "/jobs", "jobs.html", _read),)`; add the module to
  `pages/index.py`. In braces of a path are whole numbers: `/processes/{process_id}` comes as
  `visit.numbers["process_id"]`. What is named by text stands behind the question mark, where it may be anything:
  `/stage?name=…` is read with `visit.query.needed("name")`. The name of a page that is in `web/navigation.py` makes its
  entry appear there.
- **Reading.** `_read(visit)` runs in a thread and only reads; it returns what the template is filled with. It opens its
  own `transaction()`. Lists are read by key, one more than are shown (see `pages/audit.py`), by an index that has their
  order: a page is read again every two seconds by everybody who has it open. What is dear to read goes through
  `web.memory.Remembered`. Errors of `app.errors` that are raised become a page with their sentence: `NotFound` 404,
  `BadRequest` 400. Use the functions that the commands use.
- **Template.** In `templates/`: `{% extends layout %}`, `{% import "parts.html" as parts %}`, `{% set here = "jobs" %}`
  (its entry in the navigation), and the blocks `title`, `crumbs`, `head`, `before` (a form that filters, with GET),
  `live`, `after`. `parts.html` has badges, tables, pagers, facts, bars, buttons. Addresses come from `url("page", …)`,
  and `has("page")` says whether there is such a page. Filters: `ago`, `since`, `span`, `number`, `cut` (any text of a
  user), `json`, `tone`. No `style=`, no `onclick=`, no script: the browser would not run it. A list that is empty says
  what to do next: `parts.empty`.
- **Live.** The block `live` is asked for again every two seconds and merged into the page; what did not change stays as
  it is. Give rows and `<details>` an `id`, so that they stay what they are when others come before them. Nothing but
  the block `live` may change while the page is looked at.
- **Act.** What changes something is an `Act`: `ask(visit)` returns the `Question` (what will be, and the fields that it
  needs), `do(visit)` does it, by a function that audits, and returns `Done(says, to, undo)`. The fields are in
  `visit.form`, checked by reading them; what raises a `BadRequest` is told above the form. `ACTS` of the module go into
  `pages/index.py` too. In a template: `{{ parts.act(may_act, "pause_queue", "Pause", name=queue.name) }}`. The question
  is a page of its own, and a dialog where there is JavaScript. `Undo("resume_queue", {"name": …})` names the act that
  puts it back, and what is sent to it: its path is filled from it, and its form has the same fields. Only operators are
  let to acts; what is done is audited as `name@console`, with nothing to be done for it.
- **Role.** Pages are for viewers and operators. What only an operator may see asks `visit.may_act`.
- **Test.** What a page says, refuses and escapes: `tests/integration/test_pages_*.py`, with `tests.kit.pages.Person`,
  who signs in, follows forms and needs no browser. What only a browser can say (errors of its console, axe, dark,
  narrow, keyboard): add the path to `tests/browser/pages.py`; all of that is then tried with it.
"""
