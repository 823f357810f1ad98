"""How the programs read the texts of their settings: which spellings are accepted (``texts``), and
which name was meant (``nearest``). What each program can be told is its own table's."""
