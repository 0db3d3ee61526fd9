// One reducer for the whole page. Pure: messages in, state out.

const ENDED = new Set(["completed", "failed", "killed"]);
const MOST_EVENTS = 20_000;  // kept in the page; older ones are read again when asked for
const MOST_MARKS = 1000;

export function begin(id) {
  return {
    id,
    run: null,  // RunView, as new as the last message
    told: 0,  // performance.now() when its elapsed times were told
    from: null,  // where the stream begins: behind the events that were loaded; null: not yet
    timeline: {},  // phase name -> its marks and stages
    events: [],  // in their order, without a gap from the first one here to now
    older: false,  // the server has earlier ones
    series: null,  // the newest message about series, for the charts
    deleted: false,
    problem: null,
  };
}

export function isEnded(run) {
  return ENDED.has(run.status);
}

export function reduce(state, action) {
  switch (action.kind) {
    case "begin":
      return state.run?.id === action.id ? state : begin(action.id);
    case "several": {
      const events = action.actions.filter((one) => one.kind === "event").map((one) => one.event);
      const others = action.actions.filter((one) => one.kind !== "event").reduce(reduce, state);
      return events.length > 0 ? withEvents(others, events) : others;
    }
    case "loaded": {
      const events = action.events;
      const newest = events.length ? events[events.length - 1].seq : 0;
      const from = `e${newest};l;m`;
      return { ...withRun(state, action), events, older: events.length === action.most, from };
    }
    case "run":
      return withRun(state, action);
    case "progress":
      return state.run ? { ...state, run: withProgress(state.run, action.said) } : state;
    case "series":
      return { ...state, series: action.said };
    case "older":
      return { ...state, events: [...action.events, ...state.events], older: action.events.length === action.most };
    case "timeline": {
      const timeline = Object.fromEntries(action.timeline.phases.map((phase) => [phase.phase, phase]));
      return { ...state, timeline };
    }
    case "problem":
      if (action.problem.ours && [404, 410].includes(action.problem.status)) {  // a proxy's own 404 passes
        return { ...state, deleted: state.run !== null, problem: state.run ? null : action.problem };
      }
      // What is shown stays: the banner says that the server is away.
      return state.run ? state : { ...state, problem: action.problem };
    default:
      return state;
  }
}

function withRun(state, { run, now }) {
  // The stream leaves the spec and the names of the environment out: they never change.
  const kept = run.spec === null && state.run ? { spec: state.run.spec, environment: state.run.environment } : {};
  return { ...state, run: { ...run, ...kept }, told: now, problem: null };
}

function withProgress(run, said) {
  const phases = run.phases.map((phase) => {
    if (phase.name !== said.phase) return phase;
    // A stream begins with the last word of a runner, however old: only a step further is a sign of life.
    const alive = said.progress.step > phase.progress.step;
    const attempts = phase.attempts.map((attempt) => (attempt.number === said.attempt && attempt.status === "started" ? {
      ...attempt, stage: said.progress.stage, last_step: said.progress.step, reachable: attempt.reachable || alive,
    } : attempt));
    return { ...phase, progress: said.progress, epoch: said.progress.epoch, attempts };
  });
  const current = run.phase === said.phase;
  return { ...run, phases, progress: current ? said.progress : run.progress, eta_s: current ? said.eta_s : run.eta_s };
}

/** A burst at once: each one for itself would copy the list as often. */
function withEvents(state, given) {
  const last = state.events[state.events.length - 1]?.seq ?? 0;
  const fresh = given.filter((event) => event.seq > last);
  if (fresh.length === 0) return state;
  let events = [...state.events, ...fresh];
  let { older } = state;
  if (events.length > MOST_EVENTS) {
    events = events.slice(-MOST_EVENTS / 2);
    older = true;
  }
  return { ...state, events, older, timeline: fresh.reduce(withMark, state.timeline) };
}

/** An evaluation is on the timeline at once; the rest of it is asked for. */
function withMark(timeline, event) {
  const marks = timeline[event.phase];
  const step = event.data?.step;
  if (event.kind !== "evaluation" || !marks || !Number.isInteger(step)) return timeline;
  if (marks.evaluations.includes(step)) return timeline;
  let evaluations = [...marks.evaluations, step];
  if (evaluations.length > MOST_MARKS) evaluations = evaluations.filter((_, at) => at % 2 === 0);
  return { ...timeline, [event.phase]: { ...marks, evaluations } };
}
