"""Messages to the core's words and back. All validation of requests stands here.

``*_in`` modules collect every wrong field of a request before they raise; ``*_out`` modules show
what the core answered, with secrets masked. No module here decides anything about the cluster.
"""
