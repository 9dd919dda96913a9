"""Certificates of our own: an authority, the certificates that it signs, and what is in certificate files.

In: names of servers and clients, and a folder. Out: PEM files. Guarantee: a private key is in files of mode 0600 only, and each
file is replaced as a whole.
"""
