"""Simulated reports, and the truths and shares of levels that the published figures are for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp import Mechanism, Tally
from ldp.testing import SeededCoins

LEVELS, SHARES = (0.5, 1.0, 2.0, 4.0), (0.4, 0.3, 0.2, 0.1)
"""Epsilons that people choose from, and the share of the people who choose each."""


def zipf(k: int, exponent: float) -> NDArray[np.float64]:
    """Return the frequencies of k values, in proportion to rank**-exponent."""
    weight = np.arange(1, k + 1.0) ** -exponent
    distribution: NDArray[np.float64] = weight / weight.sum()
    return distribution


def revealing(k: int, epsilon: float, sensitive: Sequence[int]) -> NDArray[np.float64]:
    """Return utility-optimised k-RR's channel: values not in `sensitive` may show themselves."""
    e, v = np.exp(epsilon), len(sensitive)
    channel = np.zeros((k, k))
    channel[:, list(sensitive)] = 1 / (e + v - 1)
    for x in range(k):
        channel[x, x] = (e if x in sensitive else e - 1) / (e + v - 1)
    return channel


def tallies(mechanism: Mechanism, values: NDArray[Any], coins: SeededCoins) -> list[Tally]:
    """Return the tally of reports of each row of `values`."""
    codes = mechanism.randomize_many(values.ravel(), coins)
    return [mechanism.tally(row) for row in codes.reshape(*values.shape, *mechanism.code_shape)]


_FLIGHTS = """
    112 68 54 67 59 31 86 52 67 73 43 63 90 49 48 26 47 35 38 19 16 6 11 15 4 14 16 4 1 1 5 3 3 1 1
    1 1 1 1 0 1 1 0 0 1 0 0 0 1 0 0 0 8 5 16 48 52 107 213 70 182 121 382 1402 1092 870 860 1138
    1629 1445 1047 1177 1104 1595 2173 1308 1253 929 910 1210 1268 1170 1012 1112 1592 1530 1334
    1011 1258 1159 1272 1148 1203 980 1042 1307 1411 1251 1128 1188 1319 1110 1049 964 1062 1117
    1234 1150 1138 798 933 1008 1101 987 893 1129 1313 1112 1150 995 1166 1068 1200 1250 1276 997
    1193 1176 1469 1127 910 984 1114 1004 1103 1062 1351 1265 1179 1169 1402 1137 1258 1266 1498
    1233 1008 1064 1108 951 871 843 1287 1089 1169 1139 1108 893 1028 1129 1358 1068 962 1106 1167
    973 1093 1054 1361 1208 1401 1182 980 885 982 953 1277 955 922 1207 1389 1227 1208 932 1308 1322
    1288 1356 1432 1108 1175 1194 1261 1127 822 933 1051 1001 1120 1036 1455 1256 1210 1298 1199 942
    1180 994 1181 1009 854 1044 1154 953 857 757 930 905 870 954 1069 1030 1183 1059 1085 759 594
    671 691 621 606 531 692 645 603 638 551 388 524 590 686 441 351 336 302 211 177 137 170 168 155
    188 184 178 196 140
    """

FLIGHTS = np.array(_FLIGHTS.split(), dtype=float)
"""The minute of the day at which 200,000 planes left, in 256 bins; US flights, Bureau of
Transportation Statistics (flights-200k of vega-datasets)."""
