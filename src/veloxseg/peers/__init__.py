"""Other networks, written anew from their papers or taken from MONAI, for comparison.

>>> from veloxseg.peers.registry import build_peer
>>> net = build_peer("slim-unetr", in_channels=(1, 1), classes=2, patch=(96, 96, 96))
"""
