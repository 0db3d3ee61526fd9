// All small components: `import { Button, Status } from "../ui/index.js"`.
export { Bar } from "./bar.js";
export { Button } from "./button.js";
export { Dialog } from "./dialog.js";
export { Empty } from "./empty.js";
export { Field } from "./field.js";
export { Icon } from "./icon.js";
export { Menu } from "./menu.js";
export { ProblemBox } from "./problem.js";
export { Spinner } from "./spinner.js";
export { Status, StatusMark, statusWord } from "./status.js";
export { Tabs } from "./tabs.js";
export { Ago, Ticking } from "./ticking.js";
export { toast, Toasts } from "./toast.js";
