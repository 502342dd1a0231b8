"""Passes over the steps of a plan, in the order in which they run.

`dead_code` removes steps, `fusion` groups loops in blocks, `ordering` sorts the steps of repetitions, `memory` assigns
places to values, and `encoding` describes the result to the core.
"""
