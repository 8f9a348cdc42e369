"""variants: fixes that `kinetoscope try` applies to a training run from outside, without a change of its code.

`registry` has all variants, `facts` what a program uses, `arguments` changes the arguments of calls; `fixes` has a
module for each variant.
"""

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant

__all__ = ["Applied", "Facts", "Value", "change_arguments", "variant"]
