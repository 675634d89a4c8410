"""The load: machines that ask, well or badly, all along; and what they were told.

It makes each request itself, byte by byte, so that it shares no mistake with the code under test.
"""
