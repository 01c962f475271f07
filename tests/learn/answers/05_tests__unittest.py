"""A right answer in another style: unittest."""

import unittest

import numpy as np


class Case(unittest.TestCase):
    def runTest(self):
        pass


def test_known_weights(attend):
    q, k, v = np.array([[2.0, 0, 0, 0]]), np.array([[np.log(2), 0, 0, 0], [0, 1, 0, 0]]), np.array([[3.0, 0], [0, 6]])
    Case().assertTrue(np.allclose(attend(q, k, v), [[2, 2]]))


def test_square(attend):
    q, k, v = np.diag([2.0, 0, 0, 0]), np.diag([np.log(3), 0, 0, 0]), np.arange(16.0).reshape(4, 4)
    expected = np.ones((4, 1)) * v.mean(0)
    expected[0] = (3 * v[0] + v[1] + v[2] + v[3]) / 6
    Case().assertTrue(np.allclose(attend(q, k, v), expected))


def test_extreme(attend):
    q = np.array([[1e4], [-1e4]])
    Case().assertTrue(np.allclose(attend(q, np.array([[1.0], [1.0]]), np.array([[1.0], [3.0]])), 2))
