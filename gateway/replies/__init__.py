"""Answers to devices: receipts and the replies of decoders."""
