// The story's stations, in their order: the diagram grows by a part at each.
const ORDER = ["patches", "embedding", "positions", "attention", "mlp", "layers", "head", "learned", "what-if"];

// How far the story has come: the station of its stop, or the last one where everything is shown.
export function reached({ state, stops }) {
  const { station, reaches = station } = stops[state.stop];
  return state.isWhole ? "what-if" : reaches;
}
// A stop that watches attention has a guess first.
export const isGuessing = ({ state, stops }) => Boolean(stops[state.stop].watch) && !state.hasGuessed && !state.isAway;
export const hasReached = (page, station) => ORDER.indexOf(station) <= ORDER.indexOf(reached(page));

// The guided tour's stops. At each one a station is open, one part of the page gets a frame (highlight), and a sentence
// says what to try there.
//   shownWhen: whether this model has such a stop; none: every model
//   follow: the token that is followed, "patch" or "class"; none: the reader's
//   alsoInSight: what else must be in sight; buttons: beside the sentence
//   watch: the part of attention that is guessed, and then played
//   reaches: how far the story has come, if not to the station
//   afterAnother: what is said once another picture was taken
//   hasTasks: the sentence ends with a task, see tasks.js

const STORY = [
  {
    station: "patches",
    highlight: ".pad canvas",
    follow: "patch",
    shownWhen: ({ canDraw }) => canDraw,
    text: () => "Press Clear and draw a digit: the answer follows your pen. Now draw a star: what does it name?",
  },
  {
    station: "patches",
    highlight: ".pad canvas",
    buttons: ["another"],
    follow: "patch",
    shownWhen: ({ canDraw }) => !canDraw,
    text: ({ K }) => `Take another picture, or drop your own. Whatever it shows, the model picks one of ${K} names.`,
  },
  {
    station: "patches",
    highlight: ".picker canvas",
    alsoInSight: ["[data-tour=pixels]"],
    follow: "patch",
    text: ({ N, H, W, click }) =>
      `The model gets the picture, ${H} × ${W} pixels, in ${N} pieces, called patches. Patches, rows and columns are counted from 0. ` +
      `${click} one: could you name the picture from it?`,
  },
  {
    station: "embedding",
    highlight: "[data-tour=token]",
    alsoInSight: [".picker canvas", "[data-tour=x]"],
    buttons: ["another"],
    follow: "patch",
    text: ({ D, canDraw, click }) =>
      `A table learned in training, E, turns the patch into ${D} numbers: a token. ` +
      (canDraw
        ? `${click} two patches that are all black: do their tokens differ?`
        : `${click} others: how much do their tokens differ?`),
  },
  {
    station: "embedding",
    highlight: '[data-meaning="row"]',
    alsoInSight: ["[data-tour=token]"],
    follow: "patch",
    shownWhen: ({ isTried }) => isTried,
    text: ({ point }) =>
      "Each number is the patch’s pixels times numbers of E, added up, plus a bias. " +
      `Below, six patches make one number largest: what do they share? ${point} other numbers.`,
  },
  {
    station: "positions",
    highlight: "[data-tour=z0]",
    alsoInSight: [".picker canvas", "[data-tour=content]", "[data-tour=position]"],
    follow: "patch",
    shownWhen: ({ hasPositions }) => hasPositions,
    text: ({ canDraw, click }) =>
      "The token doesn’t say where its patch was. So a list for its place is added. " +
      (canDraw
        ? `${click} the same two black patches: do they differ now?`
        : `${click} other patches: each place has its own.`),
  },
  {
    station: "positions",
    highlight: "[data-tour=z0]",
    alsoInSight: [".picker canvas", "[data-tour=content]", "[data-tour=position]"],
    follow: "class",
    buttons: ["another"],
    shownWhen: ({ hasClassToken }) => hasClassToken,
    text: () =>
      "One more token joins: the class token, of no patch. It will collect the answer. " +
      "Take another picture: do its numbers change here?",
    afterAnother: "Another picture, the same numbers: the class token has seen no patch yet.",
  },
  {
    station: "attention",
    highlight: "[data-tour=watch]",
    reaches: "positions",
    watch: "ask",
    follow: "class",
    text: ({ aToken }) =>
      "In attention, tokens exchange what they know. Learned tables make a query q, a key k and a value v of each. " +
      `Guess: which k fits the q of ${aToken} best?`,
  },
  {
    station: "attention",
    highlight: "[data-tour=watch]",
    watch: "look",
    follow: "class",
    text: ({ click }) =>
      "A score is q times k, cell by cell, added up. Softmax turns scores into shares. Guess: how large is the largest? " +
      `Then ${click.toLowerCase()} another patch: where does it look?`,
  },
  {
    station: "attention",
    highlight: "[data-tour=watch]",
    watch: "take",
    follow: "class",
    text: () =>
      "Each token adds its v, in proportion to its share. A temperature divides the scores before softmax. " +
      "Guess: if it is halved, does the largest share grow? Then try it.",
  },
  {
    station: "attention",
    highlight: ".heads",
    alsoInSight: ['[data-meaning="head"]'],
    follow: "class",
    shownWhen: ({ h }) => h > 1,
    text: ({ h }) =>
      `Each token looks in ${h} ways at once: ${h} heads. You saw one of them. ` +
      "Choose another: what does that one look for?",
  },
  {
    station: "attention",
    highlight: "[data-tour=middle]",
    alsoInSight: ["[data-tour=joined]", "[data-tour=old]", "[data-tour=added]"],
    follow: "class",
    text: ({ point }) =>
      "What all heads took is joined. A table makes one list of it: z + the list = z′. " +
      `So the old token stays in it: a residual connection. ${point} a number of z′: which two make it?`,
  },
  {
    station: "mlp",
    highlight: "[data-tour=hidden]",
    alsoInSight: ["[data-tour=list]", '[data-meaning="unit"]', "[data-tour=mlp-adds]", "[data-tour=mlp-sum]"],
    text: ({ M, point, unitQuestion }) =>
      `Then the MLP, a small network: ${M} hidden units look at each token alone. ` +
      `The better one fits, the more of its list it adds. ${point} one: ${unitQuestion}?`,
  },
  {
    station: "layers",
    highlight: "[data-tour=lens]",
    buttons: ["another"],
    text: ({ blocks }) =>
      `Attention and MLP are a block. ${blocks}Each row: the answer if the model stopped there. ` +
      "Take other pictures: when does it settle?",
  },
  {
    station: "head",
    highlight: "[data-tour=probabilities]",
    alsoInSight: ["[data-tour=pooled]", "[data-tour=logits]"],
    buttons: ["another", "clear"],
    text: ({ read }) =>
      `The classifier reads ${read}. Each class, a possible answer, gets a share of 100 %. ` +
      "Press Clear: how sure is it of nothing? Then take another picture.",
  },
  {
    station: "layers",
    reaches: "learned",
    highlight: ".answer",
    buttons: ["another"],
    shownWhen: ({ hasStates }) => hasStates,
    text: () =>
      "All its numbers began as noise: each digit got about 10 %. Training improved them. " +
      "An epoch is all training pictures once. Move the slider from 0 on: when is it sure?",
  },
  {
    station: "what-if",
    highlight: ".map",
    buttons: ["another", "reset", "shuffle"],
    text: ({ click }) =>
      `Now break it: ${click.toLowerCase()} parts of the diagram to cut them. ` +
      "Without + z of block 1 the old tokens are lost: which answers survive? " +
      "Press Reset, then Shuffle all: what is it now?",
  },
  {
    station: "what-if",
    highlight: ".map",
    buttons: ["another", "reset", "next-task"],
    hasTasks: true,
    text: () => "You have met every part. Five tasks are left: press Reset before each, and try other pictures. ",
  },
];

// What the sentences say of this model.
function wordsOf({ sizes, config, classes, meaning, states, isOfDigits }) {
  const hasClassToken = sizes.prefix > 0;
  const isTouched = matchMedia("(pointer: coarse)").matches;
  return {
    ...sizes,
    K: classes.length,
    canDraw: isOfDigits && sizes.H <= 32,
    isTried: Boolean(meaning),
    hasPositions: config.position !== "none",
    hasClassToken,
    hasStates: states.length > 0,
    aToken: hasClassToken ? "the class token" : "your patch",
    read: config.pool === "cls" ? "the class token only" : "the mean of all patches",
    unitQuestion: meaning ? "do its patches share anything" : "is it on, above 0",
    blocks: sizes.L > 1 ? `Here ${sizes.L} follow each other. ` : "",
    point: isTouched ? "Tap" : "Point at",
    click: isTouched ? "Tap" : "Click",
  };
}

// The story of this model: its stops, each with its text.
export function storyOf(model) {
  const words = wordsOf(model);
  const shown = STORY.filter(({ shownWhen = () => true }) => shownWhen(words));
  return shown.map((stop) => ({ ...stop, text: stop.text(words) }));
}
