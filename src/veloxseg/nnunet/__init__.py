"""nnU-Net's folders: its models are converted, VeloxSeg is trained inside it, its data sets are taken over."""
