/* Scanner: turns the events of a Chrome JSON trace into columns.
 *
 *     bytes ──► Scanner.scan: ordinary events, up to the first that is not ──► blocks of columns
 *
 * An event is ordinary if it is strict JSON and its fields have the types of the format. At any
 * other event (a string as a time, a field twice, a number too large) scan returns its place;
 * `formats/chrome_event.py` makes an ordinary event of it or leaves it out.
 *
 * Texts that repeat (names, categories, tracks, shapes) are stored once, and columns hold their
 * numbers; 0 means none. Arguments that analysis needs are columns of integers; all arguments are
 * also kept as written. A column is left out of a block in which no event has it. */

#include <stdlib.h>
#include <string.h>

#include "scan/block.h"
#include "scan/row.h"
#include "text/bytes.h"
#include "text/json.h"

#define MAX_WINDOW_BYTES ((size_t)1 << 30)

typedef struct {
    PyObject_HEAD
    Table texts[MAX_TEXTS];
    int num_texts, num_numbers;
    Keys keys;
    Block *block;    /* the block that is being filled */
    PyObject *full;  /* list of blocks, each a list of columns */
    PyObject *names; /* tuple of bytes: names of the columns, except the phase */
    int is_busy;
} Scanner;

/* -- writing an event as a row -- */

static int put_piece(Scanner *scanner, int column, Text piece)
{
    uint32_t number = table_intern(&scanner->texts[column], piece.at, piece.length);
    return number != TABLE_FULL && block_put_text(scanner->block, column, number);
}

/* The text of a track is a JSON list of its pid and tid; `null` for one that is missing. */
static int put_track(Scanner *scanner, const Row *row)
{
    char text[256], *long_text = NULL, *start = text;
    static const Text none = {"null", 4};
    Text pid = row->has_pid ? row->pid : none, tid = row->has_tid ? row->tid : none;
    if (pid.length + tid.length + 1 > sizeof text)
        start = long_text = malloc(pid.length + tid.length + 1);
    if (start == NULL) return 0;
    memcpy(start, pid.at, pid.length);
    start[pid.length] = ',';
    memcpy(start + pid.length + 1, tid.at, tid.length);
    int is_put = put_piece(scanner, TEXT_TRACK, (Text){start, pid.length + 1 + tid.length});
    free(long_text);
    return is_put;
}

static int put_own_texts(Scanner *scanner, const Row *row)
{
    return (!row->has_name || put_piece(scanner, TEXT_NAME, row->name)) &&
           (!row->has_category || put_piece(scanner, TEXT_CATEGORY, row->category)) &&
           (!row->has_id_text || put_piece(scanner, TEXT_ID, row->id)) && put_track(scanner, row);
}

/* Writes the columns that only some events have. */
static int put_some(Scanner *scanner, const Row *row)
{
    for (uint32_t left = row->has_number; left != 0; left &= left - 1) {
        int column = __builtin_ctz(left);
        if (!block_put_number(scanner->block, column, row->numbers[column])) return 0;
    }
    for (uint32_t left = row->has_text; left != 0; left &= left - 1) {
        int column = __builtin_ctz(left);
        if (!put_piece(scanner, column, row->texts[column])) return 0;
    }
    return 1;
}

static int put_args(Block *block, const Row *row)
{
    if (row->has_args) {
        char *into = block_room(block, BYTES_ARGS, 0, row->args.length);
        if (into == NULL) return 0;
        memcpy(into, row->args.at, row->args.length);
    }
    block_end_bytes(block, BYTES_ARGS, row->has_args ? row->args.length : 0);
    return 1;
}

/* Writes the other fields, as a JSON object. */
static int put_fields(Block *block, const Row *row)
{
    size_t length = 0;
    for (int i = 0; i < row->num_fields; i++) {
        Text field = row->fields[i];
        char *into = block_room(block, BYTES_FIELDS, length, field.length + 2);
        if (into == NULL) return 0;
        *into = i == 0 ? '{' : ',';
        memcpy(into + 1, field.at, field.length);
        into[field.length + 1] = '}'; /* overwritten if another field follows */
        length += field.length + 1;
    }
    block_end_bytes(block, BYTES_FIELDS, length > 0 ? length + 1 : 0);
    return 1;
}

static int put_row(Scanner *scanner, const Row *row)
{
    Block *block = scanner->block;
    if (block->phases == NULL && (block->phases = pages_new(BLOCK_ROWS)) == NULL) return 0;
    block->phases[block->num_rows] = row->phase;
    if (!put_own_texts(scanner, row) || !put_some(scanner, row) || !put_args(block, row) ||
        !put_fields(block, row))
        return 0;
    block->num_rows++;
    return 1;
}

/* -- the scanner from Python -- */

typedef enum { SCAN_MORE, SCAN_LIST_END, SCAN_REFUSED, SCAN_NO_MEMORY } ScanEnd;

/* Progress of a scan: `at` is after the last event, or at the closing bracket or refused event. */
typedef struct {
    const char *at;
    ScanEnd end;
    int64_t num_comma_errors; /* number of extra or missing commas */
    int is_first;             /* there was no event before */
} Progress;

/* Reads events while they are ordinary and complete, and fit into the block. */
static void scan_events(Scanner *scanner, Progress *progress, const char *end)
{
    Row row;
    while (!block_is_full(scanner->block, (size_t)(end - progress->at))) {
        int64_t num_commas;
        /* blanks were read; commas are counted together with what follows them */
        progress->at = json_skip_space(progress->at, end);
        const char *next = json_skip_commas(progress->at, end, &num_commas);
        progress->end = SCAN_MORE;
        if (next == end) return;
        int num_expected = *next != ']' && !progress->is_first;
        int64_t num_comma_errors = num_commas > num_expected ? num_commas - num_expected
                                                             : num_expected - num_commas;
        RowVerdict verdict = *next == '{' ? row_read(&scanner->keys, &row, &next, end)
                                          : ROW_REFUSED;
        if (verdict == ROW_REFUSED && *next == ']') {
            *progress = (Progress){next, SCAN_LIST_END,
                                   progress->num_comma_errors + num_comma_errors,
                                   progress->is_first};
            return;
        }
        if (verdict != ROW_TAKEN) {
            progress->end = verdict == ROW_CUT ? SCAN_MORE : SCAN_REFUSED;
            return;
        }
        if (!put_row(scanner, &row)) {
            progress->end = SCAN_NO_MEMORY;
            return;
        }
        *progress = (Progress){next, SCAN_MORE, progress->num_comma_errors + num_comma_errors, 0};
    }
}

/* Appends the current block to the full ones and begins another. Returns -1 with an error set. */
static int finish_block(Scanner *scanner)
{
    Block *next = calloc(1, sizeof *next);
    PyObject *block = next == NULL ? PyErr_NoMemory() : PyList_New(0);
    if (block == NULL) {
        free(next);
        return -1;
    }
    int failed = block_move(scanner->block, block, scanner->names, scanner->num_texts,
                            scanner->num_numbers);
    block_free(scanner->block);
    scanner->block = next;
    if (!failed) failed = PyList_Append(scanner->full, block);
    Py_DECREF(block);
    return failed;
}

static int scan_blocks(Scanner *scanner, Progress *progress, const char *end)
{
    do {
        if (scanner->block->num_rows > 0 &&
            block_is_full(scanner->block, (size_t)(end - progress->at)) &&
            finish_block(scanner) < 0)
            return -1;
        Py_BEGIN_ALLOW_THREADS
        scan_events(scanner, progress, end);
        Py_END_ALLOW_THREADS
        if (progress->end == SCAN_NO_MEMORY) {
            PyErr_NoMemory();
            return -1;
        }
    } while (progress->end == SCAN_MORE &&
             block_is_full(scanner->block, (size_t)(end - progress->at)));
    return 0;
}

static PyObject *scanner_scan(PyObject *self, PyObject *arguments)
{
    Scanner *scanner = (Scanner *)self;
    Py_buffer window;
    Py_ssize_t at, end;
    int is_first;
    if (!PyArg_ParseTuple(arguments, "y*nnp", &window, &at, &end, &is_first)) return NULL;
    PyObject *result = NULL;
    if (at < 0 || at > end || end > window.len || (size_t)(end - at) > MAX_WINDOW_BYTES) {
        PyErr_SetString(PyExc_ValueError, "That is no part of the window, or too large.");
    } else if (is_idle(scanner, scanner->is_busy)) {
        const char *start = window.buf;
        Progress progress = {start + at, SCAN_MORE, 0, is_first};
        scanner->is_busy = 1;
        int failed = scan_blocks(scanner, &progress, start + end) < 0;
        scanner->is_busy = 0;
        if (!failed)
            result = Py_BuildValue("niL", (Py_ssize_t)(progress.at - start), (int)progress.end,
                                   (long long)progress.num_comma_errors);
    }
    PyBuffer_Release(&window);
    return result;
}

static PyObject *scanner_take(PyObject *self, PyObject *arguments)
{
    Scanner *scanner = (Scanner *)self;
    int is_last;
    if (!PyArg_ParseTuple(arguments, "p", &is_last)) return NULL;
    if (!is_idle(scanner, scanner->is_busy)) return NULL;
    if (is_last && scanner->block->num_rows > 0 && finish_block(scanner) < 0) return NULL;
    PyObject *blocks = scanner->full, *list = PyList_New(0);
    if (list == NULL) return NULL;
    scanner->full = list;
    return blocks;
}

static PyObject *scanner_texts(PyObject *self, PyObject *arguments)
{
    Scanner *scanner = (Scanner *)self;
    int column;
    if (!PyArg_ParseTuple(arguments, "i", &column)) return NULL;
    if (column < 0 || column >= scanner->num_texts || scanner->is_busy)
        return PyErr_Format(PyExc_ValueError,
                            "There is no column %d of texts, or it is being written.", column);
    return table_list(&scanner->texts[column]);
}

/* Adds one key: (text, column, rank, is_text). Returns -1 with an error set. */
static int add_key(Scanner *scanner, PyObject *given)
{
    BytesArgument text;
    int column, rank, is_text;
    if (!PyArg_ParseTuple(given, "O&iip", bytes_argument, &text, &column, &rank, &is_text))
        return -1;
    int first = is_text ? NUM_OWN_TEXTS : NUM_OWN_NUMBERS;
    int end = is_text ? scanner->num_texts : scanner->num_numbers;
    Key key = {.length = (uint8_t)text.length,
               .column = (uint8_t)column,
               .rank = (uint8_t)rank,
               .is_text = (uint8_t)is_text};
    if (text.length < 1 || text.length > sizeof key.text || column < first || column >= end ||
        rank < 0 || rank > 255) {
        PyErr_SetString(PyExc_ValueError, "A key has 1 to 40 bytes, and a column of arguments.");
        return -1;
    }
    memcpy(key.text, text.at, text.length);
    keys_add(&scanner->keys, key);
    return 0;
}

static int add_keys(Scanner *scanner, PyObject *keys)
{
    Py_ssize_t count = PyTuple_Size(keys);
    if (count > MAX_KEYS) {
        PyErr_Format(PyExc_ValueError, "There are more than %d keys.", MAX_KEYS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = PyTuple_GetItem(keys, i);
        if (!PyTuple_Check(key)) {
            PyErr_SetString(PyExc_TypeError, "A key is a tuple.");
            return -1;
        }
        if (add_key(scanner, key) < 0) return -1;
    }
    return 0;
}

static int are_bytes(PyObject *names, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (!PyBytes_Check(PyTuple_GetItem(names, i))) return 0;
    return PyTuple_Size(names) == count;
}

static int start_texts(Scanner *scanner)
{
    for (int i = 0; i < scanner->num_texts; i++) {
        if (table_intern(&scanner->texts[i], "", 0) != 0) {
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

static PyObject *scanner_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    PyObject *names, *keys;
    int num_texts, num_numbers;
    if (!PyArg_ParseTuple(arguments, "O!iiO!", &PyTuple_Type, &names, &num_texts, &num_numbers,
                          &PyTuple_Type, &keys))
        return NULL;
    if (num_texts < NUM_OWN_TEXTS || num_texts > MAX_TEXTS || num_numbers < NUM_OWN_NUMBERS ||
        num_numbers > MAX_NUMBERS || !are_bytes(names, num_texts + num_numbers + NUM_BYTES)) {
        PyErr_SetString(
            PyExc_ValueError,
            "Each column needs a name, and there may be no more than there is room for.");
        return NULL;
    }
    Scanner *scanner = object_new(type);
    if (scanner == NULL) return NULL;
    scanner->names = Py_NewRef(names);
    scanner->num_texts = num_texts;
    scanner->num_numbers = num_numbers;
    scanner->full = PyList_New(0);
    scanner->block = calloc(1, sizeof *scanner->block);
    if (scanner->block == NULL) PyErr_NoMemory();
    if (scanner->full == NULL || scanner->block == NULL || add_keys(scanner, keys) < 0 ||
        start_texts(scanner) < 0) {
        Py_DECREF((PyObject *)scanner);
        return NULL;
    }
    return (PyObject *)scanner;
}

static void scanner_dealloc(PyObject *self)
{
    Scanner *scanner = (Scanner *)self;
    for (int i = 0; i < MAX_TEXTS; i++) table_free(&scanner->texts[i]);
    if (scanner->block != NULL) block_free(scanner->block);
    Py_XDECREF(scanner->names);
    Py_XDECREF(scanner->full);
    object_free(self);
}

static PyMethodDef scanner_methods[] = {
    {"scan", scanner_scan, METH_VARARGS,
     "(window, at, end, is_first): takes events; returns the position, the reason to stop (0 end "
     "of "
     "the text, 1 end of the list, 2 refused event), and the number of misplaced commas."},
    {"take", scanner_take, METH_VARARGS, "(is_last): the blocks that are full, or all."},
    {"texts", scanner_texts, METH_VARARGS,
     "(column): the texts of a column so far, as they stand in the file."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot scanner_slots[] = {
    {Py_tp_doc,
     "Scanner(names, num_texts, num_numbers, keys): the events of one trace as columns."},
    {Py_tp_new, scanner_new},
    {Py_tp_dealloc, scanner_dealloc},
    {Py_tp_methods, scanner_methods},
    {0, NULL},
};

int scan_setup(PyObject *module)
{
    return add_type(module, "kinetoscope._native.Scanner", sizeof(Scanner), 0, scanner_slots, NULL);
}
