"""The words that everything else is said in: frozen values without behaviour of their own.

``spec`` and ``workload`` hold what is wanted and what became of it, ``node`` the machines,
``resources`` the vector that is charged, ``states`` the closed vocabularies.
"""
