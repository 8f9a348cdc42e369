"""Where torch's own header says that Kineto's functions are, and only where it says so in words that we know."""

import pytest

from kinetoscope.torch.kineto_library import find_slots

HEADER = """
// A thing that happened.
struct ITraceActivity {
  virtual ~ITraceActivity() = default;
  // Where.
  [[nodiscard]] virtual int64_t deviceId() const = 0;
  virtual int64_t timestamp() const = 0;
  [[nodiscard]] virtual int64_t duration() const = 0;
  [[nodiscard]] virtual const std::string name() const = 0;
  virtual void log(ActivityLogger& logger) const = 0;
  static int64_t half(int64_t ns) {
    return ns / 2;
  }
};
"""


def test_places_count_from_the_two_of_the_destructor():
    assert find_slots(HEADER) == (5, 3, 4)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("struct ITraceActivity {", "struct ITraceActivity : Base {"),
        ("  virtual ~ITraceActivity() = default;\n", ""),
        ("const std::string name()", "std::string_view name()"),
        ("int64_t duration()", "double duration()"),
        ("timestamp()", "timestamp(bool rounded)"),
        ("virtual void log(", "virtual std::function<void(int)> log(virtual "),
        ("int64_t deviceId()", "const std::string name()"),
        (HEADER, ""),
    ],
)
def test_a_header_that_says_something_else_gives_no_places(text, other):
    assert text in HEADER
    assert find_slots(HEADER.replace(text, other)) is None
