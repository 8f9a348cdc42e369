/* Unions of time intervals, and how much of any interval they cover; see
 * `analysis/windows/intervals.py`.
 *
 *     intervals ──► in order of begin ──► islands: begin, end, and what is covered before each
 *     islands, times ──► how much is covered before each time
 *     intervals      ──► how many of them begin in each
 */

#include "scan/column.h"

#include <stdlib.h>

typedef struct {
    int64_t begin, end;
} Interval;

/* The end of the run of intervals in order that begins at `at`. */
static size_t run_end(const Interval *intervals, size_t at, size_t count)
{
    for (at++; at < count && intervals[at - 1].begin <= intervals[at].begin;) at++;
    return at;
}

static void merge_runs(const Interval *from, size_t at, size_t middle, size_t end, Interval *to)
{
    size_t left = at, right = middle;
    for (; at < end; at++) {
        int takes_left = right == end || (left < middle && from[left].begin <= from[right].begin);
        to[at] = from[takes_left ? left++ : right++];
    }
}

/* Sorts by begin, in few passes where the intervals are some runs in order, one after the other.
 * Returns which of the two arrays has the result. */
static Interval *sort_intervals(Interval *intervals, Interval *spare, size_t count)
{
    while (count > 0 && run_end(intervals, 0, count) < count) {
        for (size_t at = 0, middle, end; at < count; at = end) {
            middle = run_end(intervals, at, count);
            end = middle < count ? run_end(intervals, middle, count) : count;
            merge_runs(intervals, at, middle, end, spare);
        }
        Interval *sorted = spare;
        spare = intervals, intervals = sorted;
    }
    return intervals;
}

/* Joins sorted intervals that overlap or touch, in their place. Returns how many are left. */
static size_t join_intervals(Interval *intervals, size_t count)
{
    size_t num_islands = 0;
    Interval *last = NULL;
    for (size_t i = 0; i < count; i++) {
        if (last == NULL || intervals[i].begin > last->end) {
            last = intervals + num_islands++;
            *last = intervals[i];
        } else if (intervals[i].end > last->end)
            last->end = intervals[i].end;
    }
    return num_islands;
}

/* Joins intervals as they are read, as long as they are in order. Returns whether all are. */
static int join_in_order(const ColumnsRead *read, Interval **islands, size_t *num_islands)
{
    const int64_t *begins = read->values[0], *ends = read->values[1];
    size_t capacity = 0;
    Interval *last = NULL;
    *islands = NULL, *num_islands = 0;
    for (size_t i = 0; i < read->num_rows; i++) {
        if (ends[i] <= begins[i]) continue;
        if (last != NULL && begins[i] < last->begin) return 0;
        if (last != NULL && begins[i] <= last->end) {
            last->end = ends[i] > last->end ? ends[i] : last->end;
            continue;
        }
        if (!array_room_for_next((void **)islands, *num_islands, &capacity, sizeof **islands))
            return 0;
        last = *islands + (*num_islands)++;
        *last = (Interval){begins[i], ends[i]};
    }
    return 1;
}

/* Copies the intervals that are not empty. Returns how many. */
static size_t copy_intervals(const ColumnsRead *read, Interval *to)
{
    const int64_t *begins = read->values[0], *ends = read->values[1];
    size_t count = 0;
    for (size_t i = 0; i < read->num_rows; i++)
        if (ends[i] > begins[i]) to[count++] = (Interval){begins[i], ends[i]};
    return count;
}

/* Joins intervals in any order. Returns them, in `room`, or NULL without memory. */
static Interval *join_any(const ColumnsRead *read, Interval **room, size_t *num_islands)
{
    *num_islands = read->num_rows;
    *room = malloc((2 * read->num_rows + 1) * sizeof **room);
    if (*room == NULL) return NULL;
    size_t count = copy_intervals(read, *room);
    Interval *islands = sort_intervals(*room, *room + read->num_rows, count);
    *num_islands = join_intervals(islands, count);
    return islands;
}

/* -- from Python -- */

/* Moves a column of numbers into the list; -1 with an error set. */
static int give_column(PyObject *list, const char *title, int64_t *values, size_t count)
{
    PyObject *name = PyBytes_FromString(title);
    if (name == NULL) {
        pages_free(values);
        return -1;
    }
    int result = column_append(list, name, "l", (int64_t)count, 0, NULL, values, NULL);
    Py_DECREF(name);
    return result;
}

static PyObject *give_islands(const Interval *islands, size_t count)
{
    static const char *const titles[] = {"begin", "end", "before"};
    PyObject *list = PyList_New(0);
    for (int column = 0; list != NULL && column < 3; column++) {
        int64_t *values = pages_new((count + 1) * sizeof *values), covered = 0;
        if (values == NULL) {
            Py_DECREF(list);
            return PyErr_NoMemory();
        }
        for (size_t i = 0; i < count; i++) {
            values[i] = column == 0 ? islands[i].begin : column == 1 ? islands[i].end : covered;
            covered += islands[i].end - islands[i].begin;
        }
        if (give_column(list, titles[column], values, count) < 0) Py_CLEAR(list);
    }
    return list;
}

PyObject *cover_intervals(PyObject *Py_UNUSED(module), PyObject *stream)
{
    static const char *const formats[] = {"l", "l"};
    ColumnsRead read;
    if (columns_read(stream, formats, 2, &read) < 0) return NULL;
    Interval *room, *islands;
    size_t count;
    Py_BEGIN_ALLOW_THREADS
    if (join_in_order(&read, &room, &count)) {
        islands = room;
    } else {
        free(room);
        islands = join_any(&read, &room, &count);
    }
    Py_END_ALLOW_THREADS
    PyObject *columns = islands == NULL && count > 0 ? PyErr_NoMemory()
                                                     : give_islands(islands, count);
    free(room);
    columns_release(&read);
    return columns;
}

/* How many of the begins, which are in order, are at a time or before. `near` is the answer for the
 * time before it: times mostly come in order, so the answer is near that one, or the same. */
static size_t count_until(const int64_t *begins, size_t count, int64_t time, size_t near)
{
    size_t low = 0, high = count;
    if (near > 0 && begins[near - 1] > time) {
        high = near - 1;
    } else {
        low = near;
        for (size_t step = 1; low < count; step *= 2) {
            size_t next = step < count - low ? low + step : count;
            if (begins[next - 1] > time) {
                high = next - 1;
                break;
            }
            low = next;
        }
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (begins[middle] <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void measure(const ColumnsRead *islands, const ColumnsRead *points, int64_t *covered)
{
    const int64_t *begins = islands->values[0], *ends = islands->values[1];
    const int64_t *before = islands->values[2], *times = points->values[0];
    size_t found = 0;
    for (size_t i = 0; i < points->num_rows; i++) {
        found = count_until(begins, islands->num_rows, times[i], found);
        if (found == 0) continue; /* the pages are zero */
        int64_t end = times[i] < ends[found - 1] ? times[i] : ends[found - 1];
        covered[i] = before[found - 1] + end - begins[found - 1];
    }
}

static PyObject *measure_read(const ColumnsRead *islands, const ColumnsRead *points)
{
    int64_t *covered = pages_new((points->num_rows + 1) * sizeof *covered);
    PyObject *list = covered == NULL ? PyErr_NoMemory() : PyList_New(0);
    if (list == NULL) {
        pages_free(covered);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    measure(islands, points, covered);
    Py_END_ALLOW_THREADS
    if (give_column(list, "covered", covered, points->num_rows) < 0) Py_CLEAR(list);
    return list;
}

PyObject *covered_until(PyObject *Py_UNUSED(module), PyObject *args)
{
    static const char *const island_formats[] = {"l", "l", "l"};
    static const char *const time_formats[] = {"l"};
    PyObject *island_stream, *time_stream, *columns = NULL;
    ColumnsRead islands, points;
    if (!PyArg_ParseTuple(args, "OO:covered_until", &island_stream, &time_stream)) return NULL;
    if (columns_read(island_stream, island_formats, 3, &islands) < 0) return NULL;
    if (columns_read(time_stream, time_formats, 1, &points) == 0) {
        columns = measure_read(&islands, &points);
        columns_release(&points);
    }
    columns_release(&islands);
    return columns;
}

PyObject *count_begun(PyObject *Py_UNUSED(module), PyObject *stream)
{
    static const char *const formats[] = {"l", "l"};
    ColumnsRead read;
    if (columns_read(stream, formats, 2, &read) < 0) return NULL;
    const int64_t *begins = read.values[0], *ends = read.values[1];
    int64_t *counts = pages_new((read.num_rows + 1) * sizeof *counts);
    PyObject *list = counts == NULL ? PyErr_NoMemory() : PyList_New(0);
    if (list == NULL) {
        pages_free(counts);
        columns_release(&read);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i < read.num_rows; i++) {
        size_t before = i + 1;
        if (ends[i] > begins[i]) before = count_until(begins, read.num_rows, ends[i] - 1, before);
        counts[i] = (int64_t)(before - i);
    }
    Py_END_ALLOW_THREADS
    if (give_column(list, "begun", counts, read.num_rows) < 0) Py_CLEAR(list);
    columns_release(&read);
    return list;
}
