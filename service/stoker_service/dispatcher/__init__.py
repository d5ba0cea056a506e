"""The dispatcher: who is there, which job wants what, which worker owns which lane."""
