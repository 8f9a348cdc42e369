/* Replay of a dependency graph: the times of all nodes after the weights of edges have changed.
 * A node has a time. An edge requires that its target is at least its weight later than its source.
 * The lag of a node, which it keeps, is its recorded time minus the latest time that its edges
 * require.
 *
 *     nodes, edges ──► edges by target ──► lags ──► nodes in topological order ──► times
 */

#include "scan/column.h"

#include <stdlib.h>
#include <string.h>

#include "text/bytes.h"

#define DROPPED INT64_MIN /* the changed weight of an edge that is not there any more */

typedef struct {
    const int64_t *times, *weights, *changed;
    const uint32_t *sources, *targets;
    size_t num_nodes, num_edges;
    uint32_t *by_target, *by_source;       /* edges, those of each target or source together */
    size_t *target_places, *source_places; /* where those of each node begin, and the last end */
    uint32_t *order, *num_waiting;
    int64_t *replayed;
} Replay;

/* Puts the edges of each node together. */
static void group_edges(const uint32_t *nodes, size_t num_nodes, size_t num_edges, size_t *places,
                        uint32_t *edges)
{
    size_t *next = places + 1; /* in the end, next[node] is where the node's edges end */
    for (size_t edge = 0; edge < num_edges; edge++) next[nodes[edge] + (size_t)1]++;
    for (size_t node = 1; node <= num_nodes; node++) next[node] += next[node - 1];
    for (size_t edge = 0; edge < num_edges; edge++) edges[next[nodes[edge]]++] = (uint32_t)edge;
}

/* Sort the nodes topologically; return the number of sorted nodes, which is smaller than the number
 * of all nodes if there is a cycle. */
static size_t order_nodes(Replay *replay)
{
    size_t num_ordered = 0;
    for (size_t edge = 0; edge < replay->num_edges; edge++)
        replay->num_waiting[replay->targets[edge]]++;
    for (size_t node = 0; node < replay->num_nodes; node++)
        if (replay->num_waiting[node] == 0) replay->order[num_ordered++] = (uint32_t)node;
    for (size_t at = 0; at < num_ordered; at++) {
        uint32_t node = replay->order[at];
        for (size_t i = replay->source_places[node]; i < replay->source_places[node + 1]; i++) {
            uint32_t target = replay->targets[replay->by_source[i]];
            if (--replay->num_waiting[target] == 0) replay->order[num_ordered++] = target;
        }
    }
    return num_ordered;
}

/* Return the latest time that the edges to a node require; its recorded time without edges. */
static int64_t latest(const Replay *replay, uint32_t node, const int64_t *times,
                      const int64_t *weights)
{
    int64_t found = INT64_MIN;
    for (size_t i = replay->target_places[node]; i < replay->target_places[node + 1]; i++) {
        uint32_t edge = replay->by_target[i];
        if (weights[edge] == DROPPED) continue;
        int64_t time = times[replay->sources[edge]] + weights[edge];
        found = time > found ? time : found;
    }
    return found == INT64_MIN ? replay->times[node] : found;
}

static void replay_nodes(Replay *replay)
{
    for (size_t at = 0; at < replay->num_nodes; at++) {
        uint32_t node = replay->order[at];
        int64_t lag = replay->times[node] - latest(replay, node, replay->times, replay->weights);
        replay->replayed[node] = latest(replay, node, replay->replayed, replay->changed) + lag;
    }
}

static int make_room(Replay *replay)
{
    size_t num_nodes = replay->num_nodes, num_edges = replay->num_edges;
    replay->by_target = malloc((num_edges + 1) * sizeof *replay->by_target);
    replay->by_source = malloc((num_edges + 1) * sizeof *replay->by_source);
    replay->target_places = calloc(num_nodes + 2, sizeof *replay->target_places);
    replay->source_places = calloc(num_nodes + 2, sizeof *replay->source_places);
    replay->order = malloc((num_nodes + 1) * sizeof *replay->order);
    replay->num_waiting = calloc(num_nodes + 1, sizeof *replay->num_waiting);
    replay->replayed = pages_new_large((num_nodes + 1) * sizeof *replay->replayed);
    return replay->by_target && replay->by_source && replay->target_places &&
           replay->source_places && replay->order && replay->num_waiting && replay->replayed;
}

static void free_rooms(Replay *replay)
{
    free(replay->by_target);
    free(replay->by_source);
    free(replay->target_places);
    free(replay->source_places);
    free(replay->order);
    free(replay->num_waiting);
    pages_free(replay->replayed);
}

/* Returns why it failed, or NULL. */
static const char *replay_all(Replay *replay)
{
    for (size_t edge = 0; edge < replay->num_edges; edge++)
        if (replay->sources[edge] >= replay->num_nodes ||
            replay->targets[edge] >= replay->num_nodes)
            return "An edge has no node.";
    group_edges(replay->targets, replay->num_nodes, replay->num_edges, replay->target_places,
                replay->by_target);
    group_edges(replay->sources, replay->num_nodes, replay->num_edges, replay->source_places,
                replay->by_source);
    if (order_nodes(replay) < replay->num_nodes) return "Some nodes wait for each other.";
    replay_nodes(replay);
    return NULL;
}

/* -- from Python -- */

static PyObject *give_times(Replay *replay)
{
    PyObject *list = PyList_New(0), *name = PyBytes_FromString("time");
    void *times = replay->replayed;
    if (list == NULL || name == NULL) {
        Py_XDECREF(list);
        Py_XDECREF(name);
        return NULL;
    }
    replay->replayed = NULL;
    if (column_append(list, name, "l", (int64_t)replay->num_nodes, 0, NULL, times, NULL) < 0)
        Py_CLEAR(list);
    Py_DECREF(name);
    return list;
}

static PyObject *replay_read(const ColumnsRead *nodes, const ColumnsRead *edges)
{
    Replay replay = {.times = nodes->values[0],
                     .sources = edges->values[0],
                     .targets = edges->values[1],
                     .weights = edges->values[2],
                     .changed = edges->values[3],
                     .num_nodes = nodes->num_rows,
                     .num_edges = edges->num_rows};
    const char *fault = NULL;
    PyObject *result = NULL;
    int has_room = make_room(&replay);
    if (has_room) {
        Py_BEGIN_ALLOW_THREADS
        fault = replay_all(&replay);
        Py_END_ALLOW_THREADS
    }
    if (!has_room)
        PyErr_NoMemory();
    else if (fault != NULL)
        PyErr_SetString(PyExc_ValueError, fault);
    else
        result = give_times(&replay);
    free_rooms(&replay);
    return result;
}

PyObject *replay_graph(PyObject *Py_UNUSED(module), PyObject *args)
{
    static const char *const node_formats[] = {"l"};
    static const char *const edge_formats[] = {"I", "I", "l", "l"};
    PyObject *node_stream, *edge_stream;
    ColumnsRead nodes, edges;
    if (!PyArg_ParseTuple(args, "OO:replay_graph", &node_stream, &edge_stream)) return NULL;
    if (columns_read(node_stream, node_formats, 1, &nodes) < 0) return NULL;
    PyObject *result = NULL;
    if (columns_read(edge_stream, edge_formats, 4, &edges) == 0) {
        result = replay_read(&nodes, &edges);
        columns_release(&edges);
    }
    columns_release(&nodes);
    return result;
}
