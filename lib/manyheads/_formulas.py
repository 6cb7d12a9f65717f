"""One formula, one home: a sympy expression and the number that is computed from it."""

from collections.abc import Callable
from functools import cache

import numpy as np
import sympy
from scipy.special import betaln


def formula(expression: sympy.Basic) -> Callable:
    """A decorator that hangs an expression on the function that evaluates it."""

    def attach(function):
        function.expression = expression
        return function

    return attach


def value(expression: sympy.Basic, values: dict) -> float:
    """The expression as a number; `values` (symbol: number) may name symbols it lacks.

    Logarithms of factorials and binomials become log-gamma and log-beta functions
    first, so that large arguments neither overflow nor lose digits.
    """
    symbols, twin = _twin(expression)
    return float(twin(*(float(values[symbol]) for symbol in symbols)))


@cache
def _twin(expression: sympy.Basic) -> tuple[tuple[sympy.Symbol, ...], Callable]:
    """The expression's symbols and its numeric function of them, in that order."""
    symbols = tuple(sorted(expression.free_symbols, key=str))
    log_binomial = sympy.Function("log_binomial")
    safe = expression.replace(
        lambda part: isinstance(part, sympy.log) and isinstance(part.args[0], sympy.binomial),
        lambda part: log_binomial(*part.args[0].args),
    ).replace(
        lambda part: isinstance(part, sympy.log) and isinstance(part.args[0], sympy.factorial),
        lambda part: sympy.loggamma(part.args[0].args[0] + 1),
    )
    return symbols, sympy.lambdify(symbols, safe, [{"log_binomial": _log_binomial}, "scipy"])


def _log_binomial(n: float, k: float) -> float:
    """ln C(n, k) for real 0 <= k <= n, by one beta function: no difference of large terms."""
    return -np.log1p(n) - betaln(n - k + 1, k + 1)
