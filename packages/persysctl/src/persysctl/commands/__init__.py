"""The verbs, one per file. Each adds its arguments to the parser and names its coroutine."""
