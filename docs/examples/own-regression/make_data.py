"""Write an NPZ: eight numbers of a sample, and a float that follows from them.

python make_data.py FILE
"""

import sys

import numpy as np

generator = np.random.default_rng(0)
inputs = generator.normal(size=(3000, 8)).astype(np.float32)
signal = inputs @ generator.normal(size=8) + np.sin(2 * inputs[:, 0]) * inputs[:, 1]
np.savez(sys.argv[1], inputs=inputs, targets=signal + generator.normal(0, 0.1, 3000))
