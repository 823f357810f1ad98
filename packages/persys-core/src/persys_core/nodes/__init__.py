"""Nodes: whether they are alive, what operators want of them, when their work may move. Pure."""
