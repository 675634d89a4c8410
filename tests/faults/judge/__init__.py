"""The judge: reads what the deployment left, and says what is lost, doubled or wrong.

It imports nothing of the code under test, so that no misunderstanding is shared: documents are
parsed by hand, topics are read with a plain consumer, tables with plain SQL.
"""
