"""What a server says to analysts and operators is checked before anybody uses it.

`calls` wraps the calls of `hearsay.sending.transport`, and is the one place where answers are
checked: `fields` checks each field of any message by itself, and `answers`, `registered` and
`streams` check an answer against its request and against the survey's plan.
"""
