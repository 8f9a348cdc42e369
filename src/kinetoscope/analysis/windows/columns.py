"""Operations on rows and columns of frames by their series.

For the few rows of a window of one rank, a query of polars takes longer.
"""

import polars as pl

_MIN_ROWS_OF_QUERY = 20_000
"""From so many rows on a query is faster, since it filters columns in parallel."""


def build_frame(first: pl.Series, *others: pl.Series) -> pl.DataFrame:
    """Build a frame of columns, in a third of the time that `pl.DataFrame` takes."""
    return first.to_frame().hstack([*others])


def filter_rows(frame: pl.DataFrame, is_wanted: pl.Series) -> pl.DataFrame:
    """Return the rows where a mask is true; null counts as false."""
    if not len(frame):
        return frame
    if len(frame) >= _MIN_ROWS_OF_QUERY:
        return frame.filter(is_wanted)
    return build_frame(*(column.filter(is_wanted) for column in frame.get_columns()))


def drop_null_rows(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """Return the rows without a null in any of the named columns."""
    for name in names:
        if (column := frame[name]).has_nulls():
            frame = filter_rows(
                frame, column == column
            )  # null where a value is; `is_not_null` is a query, which takes longer
    return frame


def select_columns(frame: pl.DataFrame, *names: str, **renamed: str) -> pl.DataFrame:
    """Select columns by name, and some under another name: ``at="begin"`` is ``begin``, called ``at``."""
    return build_frame(*(frame[name] for name in names), *(frame[name].alias(new) for new, name in renamed.items()))


def sort_rows(frame: pl.DataFrame, by: str) -> pl.DataFrame:
    """Sort the rows by a column, unless they are sorted."""
    return frame if frame[by].is_sorted() else frame.sort(by)


def constant_column(name: str, value: object, dtype: pl.DataType | type[pl.DataType], number: int) -> pl.Series:
    """Return a column of one value, or of nulls."""
    return pl.Series(name, [value], dtype=dtype).new_from_index(0, number)


def add_constant_column(
    frame: pl.DataFrame, name: str, value: object, dtype: pl.DataType | type[pl.DataType]
) -> pl.DataFrame:
    """Add a column with the same value in all rows."""
    return frame.hstack([constant_column(name, value, dtype, len(frame))])


def clip_negative(numbers: pl.Series) -> pl.Series:
    """Return the numbers with 0 for negative ones; none may be null."""
    return numbers.zip_with(numbers > 0, pl.Series([0], dtype=numbers.dtype))


def null_unless(values: pl.Series, is_known: pl.Series) -> pl.Series:
    """Return the values, null where a condition is not true."""
    if is_known.all(ignore_nulls=False):
        return values
    return values.zip_with(is_known, pl.Series([None], dtype=values.dtype))
