// Scores of search results, as Sphinx has them. An option that is the query comes first.
var Scorer = {
  score: ([, , anchor, , score]) => {
    const query = new URLSearchParams(location.search).get("q") ?? "";
    const option = query.trim().toLowerCase().replace(/^-+/, "");
    return anchor.startsWith("#cmdoption-") && anchor.endsWith(`-${option}`) ? 200 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
