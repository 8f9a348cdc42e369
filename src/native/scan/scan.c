/* Scanning: the events of a Chrome JSON trace become columns.
 *
 *     bytes ──► Scanner.scan: ordinary events, up to the first that is not ──► Scanner.take: blocks of Columns ──► Arrow
 *
 * An event is ordinary if it is strict JSON and its fields are of the types that the format says. Whatever is not (a
 * string for a time, a field that comes twice, a number too large) is handed over: scan returns where it begins, and
 * `formats/chrome_ordinary.py` makes an ordinary event of it or leaves it out. `formats/chrome_twin.py` is the same in
 * Python, and the judge of this file.
 *
 * Texts that repeat (names, categories, tracks, shapes) are kept once, and columns hold their numbers; number 0 stands
 * for none. Arguments that analysis needs are columns of integers; all arguments stay as they were written besides. A
 * column that no event of a block has is not in the block. */

#include "scan/column.h"
#include "text/bytes.h"
#include "text/json.h"
#include "text/numbers.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_ROWS 65536
#define LEAST_BYTES ((size_t)1 << 16) /* that a column of bytes begins with */
#define LARGEST_BLOCK_BYTES ((size_t)256 << 20) /* of one column of bytes; their offsets are 32 bits wide */
#define LARGEST_WINDOW_BYTES ((size_t)1 << 30)
#define MOST_NUMBERS 32
#define MOST_TEXTS 16
#define MOST_KEYS 64
#define MOST_FIELDS 60

/* The texts that every event may have; those of arguments come after them. */
enum { TEXT_NAME, TEXT_CATEGORY, TEXT_TRACK, TEXT_ID, NUM_OWN_TEXTS };
/* And the numbers. */
enum { NUMBER_TS, NUMBER_DUR, NUMBER_ID, NUM_OWN_NUMBERS };
enum { BYTES_ARGS, BYTES_FIELDS, NUM_BYTES };

/* -- a block of columns -- */

typedef struct {
    int64_t *values;
    uint8_t *valid; /* one bit per row */
    uint32_t num_valid;
} Numbers;

typedef struct {
    int32_t *offsets;
    char *bytes;
    size_t room;
    uint8_t *valid;
    uint32_t num_valid;
} ByteColumn;

typedef struct {
    uint32_t num_rows;
    uint8_t *phases;
    uint32_t *texts[MOST_TEXTS]; /* NULL: none of the block's events has it */
    Numbers numbers[MOST_NUMBERS];
    ByteColumn bytes[NUM_BYTES];
} Columns;

static void columns_free(Columns *columns)
{
    pages_free(columns->phases);
    for (int i = 0; i < MOST_TEXTS; i++)
        pages_free(columns->texts[i]);
    for (int i = 0; i < MOST_NUMBERS; i++) {
        pages_free(columns->numbers[i].values);
        pages_free(columns->numbers[i].valid);
    }
    for (int i = 0; i < NUM_BYTES; i++) {
        pages_free(columns->bytes[i].offsets);
        pages_free(columns->bytes[i].bytes);
        pages_free(columns->bytes[i].valid);
    }
    free(columns);
}

static void set_bit(uint8_t *bits, uint32_t row) { bits[row / 8] |= (uint8_t)(1 << row % 8); }

static int put_text(Columns *columns, int column, uint32_t number)
{
    if (UNLIKELY(columns->texts[column] == NULL)) {
        columns->texts[column] = pages_new(BLOCK_ROWS * sizeof(uint32_t));
        if (columns->texts[column] == NULL)
            return 0;
    }
    columns->texts[column][columns->num_rows] = number;
    return 1;
}

static int put_number(Columns *columns, int column, int64_t value)
{
    Numbers *numbers = &columns->numbers[column];
    if (UNLIKELY(numbers->valid == NULL)) {
        if (numbers->values == NULL)
            numbers->values = pages_new(BLOCK_ROWS * sizeof *numbers->values);
        numbers->valid = numbers->values == NULL ? NULL : pages_new(BLOCK_ROWS / 8);
        if (numbers->valid == NULL)
            return 0;
    }
    numbers->values[columns->num_rows] = value;
    set_bit(numbers->valid, columns->num_rows);
    numbers->num_valid++;
    return 1;
}

static int make_bytes_room(ByteColumn *bytes, size_t wanted)
{
    if (wanted <= bytes->room)
        return 1;
    size_t room = wanted > bytes->room * 2 ? wanted + LEAST_BYTES : bytes->room * 2;
    char *grown = bytes->bytes == NULL ? pages_new(room) : pages_resize(bytes->bytes, room);
    if (grown == NULL)
        return 0;
    bytes->bytes = grown;
    bytes->room = room;
    return 1;
}

/* Room for `length` more bytes in the current row; NULL without memory. Call `end_bytes` for every row. */
static char *more_bytes(Columns *columns, int column, size_t already, size_t length)
{
    ByteColumn *bytes = &columns->bytes[column];
    if (UNLIKELY(bytes->offsets == NULL)) {
        bytes->offsets = pages_new((BLOCK_ROWS + 1) * sizeof *bytes->offsets);
        if (bytes->valid == NULL)
            bytes->valid = pages_new(BLOCK_ROWS / 8);
        if (bytes->offsets == NULL || bytes->valid == NULL) {
            pages_free(bytes->offsets);
            bytes->offsets = NULL;
            return NULL;
        }
    }
    size_t used = (size_t)bytes->offsets[columns->num_rows] + already;
    return make_bytes_room(bytes, used + length) ? bytes->bytes + used : NULL;
}

static void end_bytes(Columns *columns, int column, size_t length)
{
    ByteColumn *bytes = &columns->bytes[column];
    if (bytes->offsets == NULL)
        return;
    bytes->offsets[columns->num_rows + 1] = bytes->offsets[columns->num_rows] + (int32_t)length;
    if (length > 0) {
        set_bit(bytes->valid, columns->num_rows);
        bytes->num_valid++;
    }
}

static int is_full(const Columns *columns, size_t next_bytes)
{
    if (columns->num_rows == BLOCK_ROWS)
        return 1;
    for (int i = 0; i < NUM_BYTES; i++)
        if (columns->bytes[i].offsets != NULL && columns->num_rows > 0 &&
            (size_t)columns->bytes[i].offsets[columns->num_rows] + next_bytes > LARGEST_BLOCK_BYTES)
            return 1;
    return 0;
}

/* -- the scanner -- */

/* A key of an argument and the column it goes to. Of two keys with one column the one of lower rank counts. */
typedef struct {
    char text[40];
    uint8_t length, column, rank, is_text;
} Key;

typedef struct {
    PyObject_HEAD
    Table texts[MOST_TEXTS];
    int num_texts, num_numbers, num_keys;
    Key keys[MOST_KEYS];
    uint8_t buckets[256]; /* numbers + 1 of the first key with that hash */
    uint8_t next_key[MOST_KEYS];
    Columns *columns; /* being filled */
    PyObject *full;   /* list of blocks, each a list of Columns */
    PyObject *names;  /* tuple of bytes: those of the columns, but for the phase */
    int is_busy;
} Scanner;

static PyTypeObject *scanner_type;

/* What was read of an event before it becomes a row. */
typedef struct {
    Text name, category, pid, tid, id, args;
    uint8_t phase;
    uint8_t has_name, has_category, has_pid, has_tid, has_args, has_phase, has_id_text;
    uint32_t has_number; /* bit per column */
    int64_t numbers[MOST_NUMBERS];
    uint8_t ranks[MOST_NUMBERS];
    uint8_t text_ranks[MOST_TEXTS];
    uint32_t has_text;
    Text texts[MOST_TEXTS];
    uint64_t seen_keys;
    Text fields[MOST_FIELDS]; /* what is no field of the format: from the key's quote to the value's end */
    int num_fields;
} Event;

typedef enum { EVENT_TAKEN, EVENT_CUT, EVENT_ODD, EVENT_NO_MEMORY } Verdict;

static Verdict verdict_of(JsonFault fault) { return fault == JSON_CUT ? EVENT_CUT : EVENT_ODD; }

static int is_number_start(char byte) { return byte == '-' || (byte >= '0' && byte <= '9'); }

/* -- one event -- */

/* `at` is at an opening quote. Gives what is between the quotes. */
static const char *read_string(const char *at, const char *end, Text *piece, JsonFault *fault)
{
    unsigned marks = 0;
    const char *after = json_skip_string(at + 1, end, &marks, fault);
    if (after != NULL)
        *piece = (Text){at + 1, (size_t)(after - at - 2)};
    return after;
}

static unsigned key_bucket(const char *key, size_t length)
{
    return ((unsigned)length * 37u + (uint8_t)key[0] * 11u + (uint8_t)key[length - 1] * 5u) & 255u;
}

static const Key *find_key(const Scanner *scanner, const char *text, size_t length)
{
    if (length == 0)
        return NULL;
    for (unsigned number = scanner->buckets[key_bucket(text, length)]; number != 0;
         number = scanner->next_key[number - 1]) {
        const Key *key = &scanner->keys[number - 1];
        if (key->length == length && memcmp(key->text, text, length) == 0)
            return key;
    }
    return NULL;
}

/* Whether a key with backslashes in it may be one that has a column: if it writes a plain character by its number. */
static int hides_plain(const char *key, size_t length)
{
    for (size_t i = 0; i + 6 <= length; i++) {
        if (key[i] != '\\')
            continue;
        if (memcmp(key + i, "\\u00", 4) == 0 && key[i + 4] >= '2' && key[i + 4] <= '7')
            return 1;
        i++; /* what comes behind a backslash begins nothing */
    }
    return 0;
}

static void note_number(Event *event, const Key *key, int64_t value)
{
    uint32_t bit = (uint32_t)1 << key->column;
    if ((event->has_number & bit) && event->ranks[key->column] < key->rank)
        return;
    event->has_number |= bit;
    event->ranks[key->column] = key->rank;
    event->numbers[key->column] = value;
}

static void note_text(Event *event, const Key *key, Text piece)
{
    uint32_t bit = (uint32_t)1 << key->column;
    if ((event->has_text & bit) && event->text_ranks[key->column] < key->rank)
        return;
    event->has_text |= bit;
    event->text_ranks[key->column] = key->rank;
    event->texts[key->column] = piece;
}

/* A member of the arguments. Returns 0 if its key came before. */
static int note_argument(Event *event, const Scanner *scanner, const Key *key, const char *value, const char *after)
{
    uint64_t bit = (uint64_t)1 << (key - scanner->keys);
    int64_t number;
    if (event->seen_keys & bit)
        return 0;
    event->seen_keys |= bit;
    if (key->is_text)
        note_text(event, key, (Text){value, (size_t)(after - value)});
    else if (is_number_start(*value) && read_integer((Text){value, (size_t)(after - value)}, &number))
        note_number(event, key, number);
    return 1;
}

/* `at` is at the opening brace of the arguments. */
static const char *read_args(const Scanner *scanner, Event *event, const char *at, const char *end, JsonFault *fault)
{
    const char *start = at, *key, *value;
    size_t key_length;
    for (at = json_skip_space(at + 1, end);; at = json_skip_space(at + 1, end)) {
        unsigned marks = 0;
        if (at < end && *at == '}' && *start == '{' && json_skip_space(start + 1, end) == at)
            break; /* none at all */
        value = json_skip_key(at, end, &key, &key_length, &marks, fault);
        at = value == NULL ? NULL : json_skip_value(value, end, fault);
        if (at == NULL)
            return NULL;
        const Key *known = find_key(scanner, key, key_length);
        if ((marks & JSON_ESCAPED && hides_plain(key, key_length)) || (known != NULL && !note_argument(event, scanner, known, value, at))) {
            *fault = JSON_BAD;
            return NULL;
        }
        at = json_skip_space(at, end);
        if (at == end || *at != ',') {
            *fault = at == end ? JSON_CUT : JSON_BAD;
            if (at == end || *at != '}')
                return NULL;
            break;
        }
    }
    event->args = (Text){start, (size_t)(at + 1 - start)};
    event->has_args = 1;
    return at + 1;
}

static const char *odd(JsonFault *fault)
{
    *fault = JSON_BAD;
    return NULL;
}

static const char *read_text_field(Text *piece, uint8_t *has, const char *at, const char *end, JsonFault *fault)
{
    if (*at != '"' || *has)
        return odd(fault);
    *has = 1;
    return read_string(at, end, piece, fault);
}

/* A pid or tid: the integer or the string as it stands, with its quotes. */
static const char *read_place(Text *piece, uint8_t *has, const char *at, const char *end, JsonFault *fault)
{
    int64_t number;
    if (*has)
        return odd(fault);
    *has = 1;
    const char *after = *at == '"' || is_number_start(*at) ? json_skip_value(at, end, fault) : odd(fault);
    if (after == NULL)
        return NULL;
    *piece = (Text){at, (size_t)(after - at)};
    return *at == '"' || (read_integer(*piece, &number) && !TEXT_IS(*piece, "-0")) ? after : odd(fault);
}

static const char *read_time_field(Event *event, int column, const char *at, const char *end, JsonFault *fault)
{
    uint32_t bit = (uint32_t)1 << column;
    if (!is_number_start(*at) || (event->has_number & bit))
        return odd(fault);
    event->has_number |= bit;
    const char *after = read_us(at, end, &event->numbers[column]);
    if (after == NULL && json_skip_value(at, end, fault) != NULL)
        return odd(fault); /* it is a number, but no simple one */
    return after;
}

static const char *read_id(Event *event, const char *at, const char *end, JsonFault *fault)
{
    uint32_t bit = (uint32_t)1 << NUMBER_ID;
    if (event->has_number & bit || event->has_id_text)
        return odd(fault);
    if (*at == '"') {
        event->has_id_text = 1;
        return read_string(at, end, &event->id, fault);
    }
    const char *after = is_number_start(*at) ? json_skip_value(at, end, fault) : odd(fault);
    if (after != NULL && !read_integer((Text){at, (size_t)(after - at)}, &event->numbers[NUMBER_ID]))
        return odd(fault);
    event->has_number |= bit;
    return after;
}

static const char *read_phase(Event *event, const char *at, const char *end, JsonFault *fault)
{
    Text phase;
    at = read_text_field(&phase, &event->has_phase, at, end, fault);
    if (at == NULL)
        return NULL;
    if (phase.length != 1 || (uint8_t)phase.at[0] >= 127)
        return odd(fault);
    event->phase = (uint8_t)phase.at[0];
    return at;
}

static const char *read_other_field(Event *event, const char *key, const char *at, const char *end, JsonFault *fault)
{
    if (event->num_fields == MOST_FIELDS)
        return odd(fault);
    at = json_skip_value(at, end, fault);
    if (at != NULL)
        event->fields[event->num_fields++] = (Text){key - 1, (size_t)(at - (key - 1))};
    return at;
}

#define IS(literal) (length == sizeof(literal) - 1 && memcmp(key, literal, sizeof(literal) - 1) == 0)

static const char *read_field(const Scanner *scanner, Event *event, const char *key, size_t length, const char *at,
                              const char *end, JsonFault *fault)
{
    if (IS("name"))
        return read_text_field(&event->name, &event->has_name, at, end, fault);
    if (IS("cat"))
        return read_text_field(&event->category, &event->has_category, at, end, fault);
    if (IS("ts"))
        return read_time_field(event, NUMBER_TS, at, end, fault);
    if (IS("dur"))
        return read_time_field(event, NUMBER_DUR, at, end, fault);
    if (IS("pid"))
        return read_place(&event->pid, &event->has_pid, at, end, fault);
    if (IS("tid"))
        return read_place(&event->tid, &event->has_tid, at, end, fault);
    if (IS("ph"))
        return read_phase(event, at, end, fault);
    if (IS("id"))
        return read_id(event, at, end, fault);
    if (IS("args"))
        return *at == '{' && !event->has_args ? read_args(scanner, event, at, end, fault) : odd(fault);
    return read_other_field(event, key, at, end, fault);
}

/* `*at` is at the opening brace; afterwards behind the closing one. */
static Verdict read_event(const Scanner *scanner, Event *event, const char **at, const char *end)
{
    JsonFault fault = JSON_FINE;
    const char *next = json_skip_space(*at + 1, end), *key = NULL;
    size_t length = 0;
    memset(event, 0, offsetof(Event, numbers));
    event->has_text = 0, event->seen_keys = 0, event->num_fields = 0;
    for (;;) {
        unsigned marks = 0;
        next = json_skip_key(next, end, &key, &length, &marks, &fault);
        if (next != NULL && marks & JSON_ESCAPED && hides_plain(key, length))
            return EVENT_ODD;
        next = next == NULL ? NULL : read_field(scanner, event, key, length, next, end, &fault);
        if (next == NULL)
            return verdict_of(fault);
        next = json_skip_space(next, end);
        if (next == end)
            return EVENT_CUT;
        if (*next == '}')
            break;
        if (*next != ',')
            return EVENT_ODD;
        next = json_skip_space(next + 1, end);
    }
    if (!event->has_phase)
        return EVENT_ODD;
    *at = next + 1;
    return EVENT_TAKEN;
}

/* -- an event becomes a row -- */

static int put_piece(Scanner *scanner, int column, Text piece)
{
    uint32_t number = table_intern(&scanner->texts[column], piece.at, piece.length);
    return number != TABLE_FULL && put_text(scanner->columns, column, number);
}

/* The text of a track is its pid and tid, as in a list in JSON; `null` for one that is missing. */
static int put_track(Scanner *scanner, const Event *event)
{
    char text[256], *long_text = NULL, *start = text;
    static const Text none = {"null", 4};
    Text pid = event->has_pid ? event->pid : none, tid = event->has_tid ? event->tid : none;
    if (pid.length + tid.length + 1 > sizeof text)
        start = long_text = malloc(pid.length + tid.length + 1);
    if (start == NULL)
        return 0;
    memcpy(start, pid.at, pid.length);
    start[pid.length] = ',';
    memcpy(start + pid.length + 1, tid.at, tid.length);
    int is_put = put_piece(scanner, TEXT_TRACK, (Text){start, pid.length + 1 + tid.length});
    free(long_text);
    return is_put;
}

static int put_own_texts(Scanner *scanner, const Event *event)
{
    return (!event->has_name || put_piece(scanner, TEXT_NAME, event->name)) &&
           (!event->has_category || put_piece(scanner, TEXT_CATEGORY, event->category)) &&
           (!event->has_id_text || put_piece(scanner, TEXT_ID, event->id)) && put_track(scanner, event);
}

/* Columns that only some events have. */
static int put_some(Scanner *scanner, const Event *event)
{
    for (uint32_t left = event->has_number; left != 0; left &= left - 1) {
        int column = __builtin_ctz(left);
        if (!put_number(scanner->columns, column, event->numbers[column]))
            return 0;
    }
    for (uint32_t left = event->has_text; left != 0; left &= left - 1) {
        int column = __builtin_ctz(left);
        if (!put_piece(scanner, column, event->texts[column]))
            return 0;
    }
    return 1;
}

static int put_args(Columns *columns, const Event *event)
{
    if (event->has_args) {
        char *into = more_bytes(columns, BYTES_ARGS, 0, event->args.length);
        if (into == NULL)
            return 0;
        memcpy(into, event->args.at, event->args.length);
    }
    end_bytes(columns, BYTES_ARGS, event->has_args ? event->args.length : 0);
    return 1;
}

/* The other fields, as an object. */
static int put_fields(Columns *columns, const Event *event)
{
    size_t length = 0;
    for (int i = 0; i < event->num_fields; i++) {
        Text field = event->fields[i];
        char *into = more_bytes(columns, BYTES_FIELDS, length, field.length + 2);
        if (into == NULL)
            return 0;
        *into = i == 0 ? '{' : ',';
        memcpy(into + 1, field.at, field.length);
        into[field.length + 1] = '}'; /* overwritten if there are more */
        length += field.length + 1;
    }
    end_bytes(columns, BYTES_FIELDS, length > 0 ? length + 1 : 0);
    return 1;
}

static int put_event(Scanner *scanner, const Event *event)
{
    Columns *columns = scanner->columns;
    if (columns->phases == NULL && (columns->phases = pages_new(BLOCK_ROWS)) == NULL)
        return 0;
    columns->phases[columns->num_rows] = event->phase;
    if (!put_own_texts(scanner, event) || !put_some(scanner, event) || !put_args(columns, event) ||
        !put_fields(columns, event))
        return 0;
    columns->num_rows++;
    return 1;
}

/* -- blocks, on their way to Python -- */

static int move_phases(PyObject *list, Columns *columns)
{
    PyObject *name = PyBytes_FromString("phase");
    void *phases = columns->phases;
    columns->phases = NULL;
    if (name == NULL)
        pages_free(phases);
    int result = name == NULL ? -1 : column_append(list, name, "C", columns->num_rows, 0, NULL, phases, NULL);
    Py_XDECREF(name);
    return result;
}

/* What a buffer of bytes did not use goes back. */
static char *trimmed(ByteColumn *bytes, uint32_t num_rows)
{
    size_t used = (size_t)bytes->offsets[num_rows];
    char *smaller = pages_resize(bytes->bytes, used);
    return smaller != NULL ? smaller : bytes->bytes;
}

/* Moves the columns that any row has into the list. Whatever was moved is no longer the block's. */
static int move_columns(PyObject *list, Columns *columns, const Scanner *scanner)
{
    int64_t rows = columns->num_rows;
    int place = 0, failed = move_phases(list, columns);
    for (int i = 0; !failed && i < scanner->num_texts; i++, place++) {
        void *values = columns->texts[i];
        columns->texts[i] = NULL;
        if (values != NULL)
            failed = column_append(list, PyTuple_GetItem(scanner->names, place), "I", rows, 0, NULL, values, NULL);
    }
    for (int i = 0; !failed && i < scanner->num_numbers; i++, place++) {
        Numbers it = columns->numbers[i];
        memset(&columns->numbers[i], 0, sizeof it);
        if (it.values != NULL)
            failed = column_append(list, PyTuple_GetItem(scanner->names, place), "l", rows, rows - it.num_valid,
                                   it.valid, it.values, NULL);
    }
    for (int i = 0; !failed && i < NUM_BYTES; i++, place++) {
        ByteColumn it = columns->bytes[i];
        memset(&columns->bytes[i], 0, sizeof it);
        if (it.offsets != NULL)
            failed = column_append(list, PyTuple_GetItem(scanner->names, place), "z", rows, rows - it.num_valid,
                                   it.valid, it.offsets, trimmed(&it, (uint32_t)rows));
    }
    return failed;
}

/* -- the scanner from Python -- */

typedef enum { SCAN_MORE, SCAN_LIST_END, SCAN_ODD, SCAN_NO_MEMORY } ScanEnd;

/* How far a scan came: `at` is behind the last event, or at the closing bracket, or at the event that is odd. */
typedef struct {
    const char *at;
    ScanEnd end;
    int64_t num_stray; /* commas too many or too few */
    int is_first;      /* no event came before */
} Progress;

/* Takes events for as long as they are ordinary, whole, and fit into the block. */
static void scan_events(Scanner *scanner, Progress *progress, const char *end)
{
    Event event;
    while (!is_full(scanner->columns, (size_t)(end - progress->at))) {
        int num_commas = 0;
        const char *next = json_skip_space(progress->at, end), *before;
        progress->at = next; /* blanks are done with; commas are counted together with what comes behind them */
        do {
            before = next;
            next = json_skip_comma(next, end, &num_commas);
        } while (next != before);
        progress->end = SCAN_MORE;
        if (next == end)
            return;
        int num_expected = *next != ']' && !progress->is_first;
        int64_t num_stray = num_commas > num_expected ? num_commas - num_expected : num_expected - num_commas;
        Verdict verdict = *next == '{' ? read_event(scanner, &event, &next, end) : EVENT_ODD;
        if (verdict == EVENT_ODD && *next == ']') {
            *progress = (Progress){next, SCAN_LIST_END, progress->num_stray + num_stray, progress->is_first};
            return;
        }
        if (verdict != EVENT_TAKEN) {
            progress->end = verdict == EVENT_CUT ? SCAN_MORE : SCAN_ODD;
            return;
        }
        if (!put_event(scanner, &event)) {
            progress->end = SCAN_NO_MEMORY;
            return;
        }
        *progress = (Progress){next, SCAN_MORE, progress->num_stray + num_stray, 0};
    }
}

/* Puts the block that is being filled among the full ones, and begins another. Returns -1 with an error set. */
static int finish_block(Scanner *scanner)
{
    Columns *next = calloc(1, sizeof *next);
    PyObject *block = next == NULL ? PyErr_NoMemory() : PyList_New(0);
    if (block == NULL) {
        free(next);
        return -1;
    }
    int failed = move_columns(block, scanner->columns, scanner);
    columns_free(scanner->columns);
    scanner->columns = next;
    if (!failed)
        failed = PyList_Append(scanner->full, block);
    Py_DECREF(block);
    return failed;
}

static int scan_blocks(Scanner *scanner, Progress *progress, const char *end)
{
    do {
        if (scanner->columns->num_rows > 0 && is_full(scanner->columns, (size_t)(end - progress->at)) &&
            finish_block(scanner) < 0)
            return -1;
        Py_BEGIN_ALLOW_THREADS
        scan_events(scanner, progress, end);
        Py_END_ALLOW_THREADS
        if (progress->end == SCAN_NO_MEMORY) {
            PyErr_NoMemory();
            return -1;
        }
    } while (progress->end == SCAN_MORE && is_full(scanner->columns, (size_t)(end - progress->at)));
    return 0;
}

static PyObject *scanner_scan(PyObject *self, PyObject *arguments)
{
    Scanner *scanner = (Scanner *)self;
    Py_buffer window;
    Py_ssize_t at, end;
    int is_first;
    if (!PyArg_ParseTuple(arguments, "y*nnp", &window, &at, &end, &is_first))
        return NULL;
    PyObject *result = NULL;
    if (at < 0 || at > end || end > window.len || (size_t)(end - at) > LARGEST_WINDOW_BYTES) {
        PyErr_SetString(PyExc_ValueError, "That is no part of the window, or too large.");
    } else if (scanner->is_busy || scanner->columns == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "A scanner reads one trace, on one thread at a time.");
    } else {
        const char *start = window.buf;
        Progress progress = {start + at, SCAN_MORE, 0, is_first};
        scanner->is_busy = 1;
        int failed = scan_blocks(scanner, &progress, start + end) < 0;
        scanner->is_busy = 0;
        if (!failed)
            result = Py_BuildValue("niL", (Py_ssize_t)(progress.at - start), (int)progress.end,
                                   (long long)progress.num_stray);
    }
    PyBuffer_Release(&window);
    return result;
}

static PyObject *scanner_take(PyObject *self, PyObject *arguments)
{
    Scanner *scanner = (Scanner *)self;
    int is_last;
    if (!PyArg_ParseTuple(arguments, "p", &is_last))
        return NULL;
    if (scanner->is_busy || scanner->columns == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "A scanner reads one trace, on one thread at a time.");
        return NULL;
    }
    if (is_last && scanner->columns->num_rows > 0 && finish_block(scanner) < 0)
        return NULL;
    PyObject *blocks = scanner->full, *list = PyList_New(0);
    if (list == NULL)
        return NULL;
    scanner->full = list;
    return blocks;
}

static PyObject *scanner_texts(PyObject *self, PyObject *arguments)
{
    Scanner *scanner = (Scanner *)self;
    int column;
    if (!PyArg_ParseTuple(arguments, "i", &column))
        return NULL;
    if (column < 0 || column >= scanner->num_texts || scanner->is_busy)
        return PyErr_Format(PyExc_ValueError, "There is no column %d of texts, or it is being written.", column);
    const Table *texts = &scanner->texts[column];
    PyObject *list = PyList_New((Py_ssize_t)texts->num_entries);
    for (uint32_t number = 0; list != NULL && number < texts->num_entries; number++) {
        size_t length;
        const char *start = table_key(texts, number, &length);
        PyObject *text = PyBytes_FromStringAndSize(start, (Py_ssize_t)length);
        if (text == NULL || PyList_SetItem(list, (Py_ssize_t)number, text) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* Takes in one key: (text, column, rank, is_text). Returns -1 with an error set. */
static int add_key(Scanner *scanner, PyObject *given)
{
    Key *key = &scanner->keys[scanner->num_keys];
    const char *text;
    Py_ssize_t length;
    int column, rank, is_text;
    if (!PyArg_ParseTuple(given, "y#iip", &text, &length, &column, &rank, &is_text))
        return -1;
    int first = is_text ? NUM_OWN_TEXTS : NUM_OWN_NUMBERS;
    int end = is_text ? scanner->num_texts : scanner->num_numbers;
    if (length < 1 || (size_t)length > sizeof key->text || column < first || column >= end || rank < 0 || rank > 255) {
        PyErr_SetString(PyExc_ValueError, "A key has 1 to 40 bytes, and a column of arguments.");
        return -1;
    }
    memcpy(key->text, text, (size_t)length);
    key->length = (uint8_t)length, key->column = (uint8_t)column;
    key->rank = (uint8_t)rank, key->is_text = (uint8_t)is_text;
    uint8_t *bucket = &scanner->buckets[key_bucket(text, (size_t)length)];
    scanner->next_key[scanner->num_keys] = *bucket;
    *bucket = (uint8_t)++scanner->num_keys;
    return 0;
}

static int add_keys(Scanner *scanner, PyObject *keys)
{
    Py_ssize_t count = PyTuple_Size(keys);
    if (count > MOST_KEYS) {
        PyErr_Format(PyExc_ValueError, "There are more than %d keys.", MOST_KEYS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = PyTuple_GetItem(keys, i);
        if (!PyTuple_Check(key)) {
            PyErr_SetString(PyExc_TypeError, "A key is a tuple.");
            return -1;
        }
        if (add_key(scanner, key) < 0)
            return -1;
    }
    return 0;
}

static int are_bytes(PyObject *names, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (!PyBytes_Check(PyTuple_GetItem(names, i)))
            return 0;
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
    if (!PyArg_ParseTuple(arguments, "O!iiO!", &PyTuple_Type, &names, &num_texts, &num_numbers, &PyTuple_Type, &keys))
        return NULL;
    if (num_texts < NUM_OWN_TEXTS || num_texts > MOST_TEXTS || num_numbers < NUM_OWN_NUMBERS ||
        num_numbers > MOST_NUMBERS || !are_bytes(names, num_texts + num_numbers + NUM_BYTES)) {
        PyErr_SetString(PyExc_ValueError, "Each column needs a name, and there may be no more than there is room for.");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Scanner *scanner = (Scanner *)allocate(type, 0); /* all zero */
    if (scanner == NULL)
        return NULL;
    scanner->names = Py_NewRef(names);
    scanner->num_texts = num_texts;
    scanner->num_numbers = num_numbers;
    scanner->full = PyList_New(0);
    scanner->columns = calloc(1, sizeof *scanner->columns);
    if (scanner->columns == NULL)
        PyErr_NoMemory();
    if (scanner->full == NULL || scanner->columns == NULL || add_keys(scanner, keys) < 0 || start_texts(scanner) < 0) {
        Py_DECREF((PyObject *)scanner);
        return NULL;
    }
    return (PyObject *)scanner;
}

static void scanner_dealloc(PyObject *self)
{
    Scanner *scanner = (Scanner *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (int i = 0; i < MOST_TEXTS; i++)
        table_free(&scanner->texts[i]);
    if (scanner->columns != NULL)
        columns_free(scanner->columns);
    Py_XDECREF(scanner->names);
    Py_XDECREF(scanner->full);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef scanner_methods[] = {
    {"scan", scanner_scan, METH_VARARGS,
     "(window, at, end, is_first): takes events; where it stopped, why (0 more, 1 end of the list, 2 odd), commas astray."},
    {"take", scanner_take, METH_VARARGS, "(is_last): the blocks that are full, or all."},
    {"texts", scanner_texts, METH_VARARGS, "(column): the texts of a column so far, as they stand in the file."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot scanner_slots[] = {
    {Py_tp_doc, "Scanner(names, num_texts, num_numbers, keys): the events of one trace as columns."},
    {Py_tp_new, scanner_new},
    {Py_tp_dealloc, scanner_dealloc},
    {Py_tp_methods, scanner_methods},
    {0, NULL},
};

static PyType_Spec scanner_spec = {
    .name = "kinetoscope._native.Scanner",
    .basicsize = sizeof(Scanner),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = scanner_slots,
};

int scan_setup(PyObject *module)
{
    scanner_type = (PyTypeObject *)PyType_FromSpec(&scanner_spec);
    return scanner_type == NULL ? -1 : PyModule_AddType(module, scanner_type);
}
