"""Description of the system under test (V2 §3.2).

The process that trains on a node describes it, before and after. A value that no file or command
reports is None and printed as "not found". No module here imports torch; versions of torch's
libraries are read only in a process that has loaded torch.
"""
